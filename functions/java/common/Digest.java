package squeezy.functions;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** SHA-256, written as hexadecimal digits. */
final class Digest {
    private final MessageDigest digest;

    Digest() {
        try {
            digest = MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException error) {
            throw new AssertionError("every Java platform has SHA-256", error);
        }
    }

    void add(byte[] bytes) {
        digest.update(bytes);
    }

    /** A line of text, with its end. */
    void addLine(String line) {
        add(line.concat("\n").getBytes(StandardCharsets.UTF_8));
    }

    String hexadecimal() {
        StringBuilder text = new StringBuilder();
        for (byte value : digest.digest()) {
            text.append(String.format("%02x", value));
        }
        return text.toString();
    }
}
