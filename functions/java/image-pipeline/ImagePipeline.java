package squeezy.functions;

import com.google.gson.JsonObject;
import java.awt.image.BufferedImage;
import java.io.IOException;
import java.util.List;

/** Takes a picture through a series of steps, each of which makes a new picture. */
public final class ImagePipeline {
    private static final int MOST_STEPS = 20;

    private ImagePipeline() {}

    public static JsonObject main(JsonObject request) throws IOException {
        Arguments arguments = new Arguments(request);
        List<String> steps = arguments.texts("steps", List.of("mirror", "grey", "shrink", "blur"), MOST_STEPS, 10);
        int side = arguments.integer("side", 320, 1, 800);
        BufferedImage picture = Picture.of(arguments);
        for (String step : steps) {
            picture = take(step, picture, side);
        }
        JsonObject answer = Picture.answer(Picture.shrink(picture, 800), arguments);
        answer.addProperty("summary", String.join(", ", steps) + ": " + answer.get("width") + "x"
                + answer.get("height"));
        return answer;
    }

    private static BufferedImage take(String step, BufferedImage picture, int side) {
        switch (step) {
            case "mirror":
                return Filter.mirror(picture);
            case "invert":
                return Filter.invert(picture);
            case "grey":
                return Filter.grey(picture);
            case "blur":
                return Filter.blur(picture);
            case "shrink":
                return Picture.shrink(picture, side);
            default:
                throw new IllegalArgumentException("each of steps has to be mirror, invert, grey, blur or shrink");
        }
    }
}
