package squeezy.functions;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.util.ArrayList;
import java.util.List;

/** The arguments of a request, each checked when it is read. */
final class Arguments {
    private final JsonObject object;

    Arguments(JsonObject object) {
        this.object = object;
    }

    boolean has(String name) {
        return object.has(name);
    }

    /** A whole number from least to most. */
    long number(String name, long otherwise, long least, long most) {
        JsonElement value = object.get(name);
        if (value == null) {
            return otherwise;
        }
        if (value.isJsonPrimitive() && value.getAsJsonPrimitive().isNumber()) {
            try {
                long number = Long.parseLong(value.getAsString());
                if (number >= least && number <= most) {
                    return number;
                }
            } catch (NumberFormatException error) {
                // Not whole, or too long.
            }
        }
        throw new IllegalArgumentException(name + " has to be a whole number from " + least + " to " + most);
    }

    int integer(String name, int otherwise, int least, int most) {
        return (int) number(name, otherwise, least, most);
    }

    /** The seed of a random sequence. */
    long seed() {
        return number("seed", 1, 0, (1L << 48) - 1);
    }

    /** A text of 1 to most characters. */
    String text(String name, String otherwise, int most) {
        return object.has(name) ? text(name, object.get(name), most) : otherwise;
    }

    /** A list of at most mostTexts texts, each of 1 to most characters. */
    List<String> texts(String name, List<String> otherwise, int mostTexts, int most) {
        if (!object.has(name)) {
            return otherwise;
        }
        JsonElement value = object.get(name);
        if (!value.isJsonArray() || value.getAsJsonArray().size() > mostTexts) {
            throw new IllegalArgumentException(name + " has to be a list of at most " + mostTexts + " strings");
        }
        JsonArray array = value.getAsJsonArray();
        List<String> texts = new ArrayList<>(array.size());
        for (JsonElement element : array) {
            texts.add(text("each of " + name, element, most));
        }
        return texts;
    }

    private static String text(String name, JsonElement value, int most) {
        if (value.isJsonPrimitive()) {
            JsonPrimitive primitive = value.getAsJsonPrimitive();
            if (primitive.isString() && !primitive.getAsString().isEmpty()
                    && primitive.getAsString().length() <= most) {
                return primitive.getAsString();
            }
        }
        throw new IllegalArgumentException(name + " has to be a string of 1 to " + most + " characters");
    }
}
