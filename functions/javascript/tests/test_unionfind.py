"""The parts of a graph, found by walking through it."""

import function
from oracle import draws


def components(count, edges):
    """The sizes of the parts, largest first."""
    neighbours = [[] for _ in range(count)]
    for start, end in edges:
        neighbours[start].append(end)
        neighbours[end].append(start)
    seen, sizes = [False] * count, []
    for start in range(count):
        if seen[start]:
            continue
        seen[start], waiting, size = True, [start], 0
        while waiting:
            size += 1
            for node in neighbours[waiting.pop()]:
                if not seen[node]:
                    seen[node] = True
                    waiting.append(node)
        sizes.append(size)
    return sorted(sizes, reverse=True)


class Unionfind(function.FunctionTest):
    name = "unionfind"
    wrong = [({"nodes": 0}, "nodes"), ({"nodes": 200_001}, "nodes"), ({"edges": -1}, "edges"),
             ({"edges": True}, "edges"), ({"seed": 0.5}, "seed")]

    def test_components_are_those_that_a_walk_finds(self):
        for count, edges, seed in ((1, 0, 1), (1, 5, 1), (10, 0, 3), (100, 60, 4), (1_000, 2_000, 5), (50_000, 30_000, 6)):
            draw = draws(seed)
            sizes = components(count, [(draw(count), draw(count)) for _ in range(edges)])
            answer = self.answer(nodes=count, edges=edges, seed=seed)
            self.assertEqual(answer["components"], len(sizes))
            self.assertEqual(answer["largest"], sizes[:10])
            self.assertEqual(answer["isolated"], sizes.count(1))
