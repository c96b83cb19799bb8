package squeezy.server;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import com.google.gson.Strictness;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;
import com.google.gson.stream.MalformedJsonException;
import java.io.IOException;
import java.io.InputStream;
import java.io.StringReader;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;

/** What a request says: a JSON object with an object "value". */
final class Body {
    /** OpenWhisk's own limit for arguments, with room for the envelope around them. */
    static final int MAX_BYTES = (1 << 20) + (64 << 10);

    private Body() {}

    /** Returns the "value" of a request's body, an empty one where there is none. */
    static JsonObject value(InputStream stream) throws IOException, Refused {
        JsonElement body = parse(read(stream));
        if (body.isJsonObject()) {
            JsonElement value = body.getAsJsonObject().get("value");
            if (value == null) {
                return new JsonObject();
            }
            if (value.isJsonObject()) {
                return value.getAsJsonObject();
            }
        }
        throw noObject();
    }

    private static byte[] read(InputStream stream) throws IOException, Refused {
        byte[] body = stream.readNBytes(MAX_BYTES + 1);
        if (body.length > MAX_BYTES) {
            discard(stream, 8L * MAX_BYTES);
            throw new Refused(413, "The body is larger than " + MAX_BYTES + " bytes.");
        }
        return body;
    }

    /** Reads on, so that the client hears why; what is larger still is cut off. */
    private static void discard(InputStream stream, long most) throws IOException {
        byte[] buffer = new byte[64 << 10];
        for (long left = most; left > 0; ) {
            int count = stream.read(buffer);
            if (count < 0) {
                return;
            }
            left -= count;
        }
    }

    private static JsonElement parse(byte[] bytes) throws IOException, Refused {
        try {
            // A decoder of its own: unlike String, it does not replace what is no UTF-8.
            String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
            JsonReader reader = new JsonReader(new StringReader(text));
            reader.setStrictness(Strictness.STRICT);
            JsonElement body = JsonParser.parseReader(reader);
            if (reader.peek() == JsonToken.END_DOCUMENT) {
                return body;
            }
        } catch (CharacterCodingException | JsonParseException | MalformedJsonException error) {
            // Not JSON.
        }
        throw noObject();
    }

    private static Refused noObject() {
        return new Refused(400, "The body has to be a JSON object with an object \"value\".");
    }
}
