"""Files, their hashes and sums, made once more in memory."""

import hashlib
import pathlib
import tempfile

import function


def log(title, file, size):
    lines, length = [], 0
    while length < size:
        lines.append(f"{title} file {file} line {len(lines)} value {(len(lines) * 7919 + file) % 10007}\n")
        length += len(lines[-1])
    return lines


class Filesystem(function.FunctionTest):
    name = "filesystem"
    wrong = [({"files": 0}, "files"), ({"files": 65}, "files"), ({"bytes": 1 << 19}, "bytes"),
             ({"title": "../x"}, "title"), ({"title": ""}, "title"), ({"title": 5}, "title")]

    def test_files_are_those_that_were_asked_for(self):
        for title, files, size in (("a", 1, 1), ("a-b_c.d", 3, 1_000), ("long", 12, 70_000)):
            expected = []
            for file in range(files):
                lines = log(title, file, size)
                content = "".join(lines).encode()
                expected.append({"name": f"{file:02}.log", "bytes": len(content), "lines": len(lines),
                                 "sum": sum(int(line.split()[-1]) for line in lines),
                                 "sha256": hashlib.sha256(content).hexdigest()})
            self.assertEqual(self.answer(title=title, files=files, bytes=size)["files"], expected)

    def test_nothing_stays_behind(self):
        with tempfile.TemporaryDirectory() as directory, function.Function(self.name, TMPDIR=directory) as own:
            own.init()
            self.assertEqual(own.run(files=5)[0], 200)
            self.assertEqual(list(pathlib.Path(directory).iterdir()), [])
            pathlib.Path(directory).rmdir()
            self.assertEqual(own.run(files=5)[0], 502)
            pathlib.Path(directory).mkdir()
            self.assertEqual(own.run(files=5)[0], 200)
