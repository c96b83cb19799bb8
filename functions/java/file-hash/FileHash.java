package squeezy.functions;

import com.google.gson.JsonObject;
import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** Writes a file, reads it back, and hashes it. */
public final class FileHash {
    private static final int MOST_BYTES = 16 << 20;

    private FileHash() {}

    public static JsonObject main(JsonObject request) throws IOException {
        Arguments arguments = new Arguments(request);
        String line = arguments.text("line", "All work and no play makes Jack a dull boy.", 1000);
        int lines = arguments.integer("lines", 100_000, 0, 1_000_000);
        // A character of UTF-16 is at most three bytes of UTF-8.
        if ((line.length() * 3L + 1) * lines > MOST_BYTES) {
            throw new IllegalArgumentException("lines times three characters have to be at most " + MOST_BYTES);
        }
        Path file = Files.createTempFile("file-hash", ".txt");
        try {
            try (BufferedWriter writer = Files.newBufferedWriter(file)) {
                for (int number = 0; number < lines; number++) {
                    writer.write(line.concat("\n"));
                }
            }
            byte[] content = Files.readAllBytes(file);
            Digest digest = new Digest();
            digest.add(content);
            JsonObject answer = new JsonObject();
            answer.addProperty("bytes", content.length);
            answer.addProperty("sha256", digest.hexadecimal());
            return answer;
        } finally {
            Files.delete(file);
        }
    }
}
