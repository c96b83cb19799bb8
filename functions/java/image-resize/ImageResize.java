package squeezy.functions;

import com.google.gson.JsonObject;
import java.awt.image.BufferedImage;
import java.io.IOException;

/** Decodes a picture, makes it smaller, and encodes it. */
public final class ImageResize {
    private ImageResize() {}

    public static JsonObject main(JsonObject request) throws IOException {
        Arguments arguments = new Arguments(request);
        int side = arguments.integer("side", 320, 1, 800);
        BufferedImage picture = Picture.of(arguments);
        BufferedImage smaller = Picture.shrink(picture, side);
        JsonObject answer = Picture.answer(smaller, arguments);
        answer.addProperty("summary", picture.getWidth() + "x" + picture.getHeight() + " became "
                + smaller.getWidth() + "x" + smaller.getHeight());
        return answer;
    }
}
