package squeezy.functions;

import com.google.gson.JsonObject;
import java.awt.Color;
import java.awt.Graphics2D;
import java.awt.RenderingHints;
import java.awt.image.BufferedImage;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Base64;
import java.util.Iterator;
import javax.imageio.IIOException;
import javax.imageio.ImageIO;
import javax.imageio.ImageReader;
import javax.imageio.stream.ImageInputStream;

/** Decodes, scales and encodes pictures. */
final class Picture {
    /** Beyond this a few bytes could decode to more than the heap holds. */
    private static final int MOST_PIXELS = 8_000_000;
    private static final int MOST_BASE64_CHARACTERS = 1 << 20;

    static {
        // Otherwise it writes what it reads to a file first.
        ImageIO.setUseCache(false);
    }

    private Picture() {}

    /** The picture that the request brings, in base64, or else the photograph. */
    static BufferedImage of(Arguments arguments) throws IOException {
        if (!arguments.has("image")) {
            return decode(Photograph.JPEG);
        }
        byte[] bytes;
        try {
            bytes = Base64.getDecoder().decode(arguments.text("image", "", MOST_BASE64_CHARACTERS));
        } catch (IllegalArgumentException error) {
            throw new IllegalArgumentException("image has to be a picture in base64", error);
        }
        return decode(bytes);
    }

    private static BufferedImage decode(byte[] bytes) throws IOException {
        try (ImageInputStream stream = ImageIO.createImageInputStream(new ByteArrayInputStream(bytes))) {
            Iterator<ImageReader> readers = ImageIO.getImageReaders(stream);
            if (!readers.hasNext()) {
                throw new IllegalArgumentException("image has to be a JPEG, PNG, GIF or BMP");
            }
            ImageReader reader = readers.next();
            try {
                // Without what stands beside the pixels.
                reader.setInput(stream, true, true);
                if ((long) reader.getWidth(0) * reader.getHeight(0) > MOST_PIXELS) {
                    throw new IllegalArgumentException("image has more than " + MOST_PIXELS + " pixels");
                }
                return opaque(reader.read(0));
            } catch (IIOException | IndexOutOfBoundsException error) {
                throw new IllegalArgumentException("image is damaged: " + error.getMessage(), error);
            } finally {
                reader.dispose();
            }
        }
    }

    /** The picture on white, as red, green and blue in one int each. */
    private static BufferedImage opaque(BufferedImage picture) {
        BufferedImage result = blank(picture.getWidth(), picture.getHeight());
        Graphics2D graphics = result.createGraphics();
        graphics.drawImage(picture, 0, 0, Color.WHITE, null);
        graphics.dispose();
        return result;
    }

    static BufferedImage blank(int width, int height) {
        return new BufferedImage(width, height, BufferedImage.TYPE_INT_RGB);
    }

    /** The picture with its longer side no longer than this, halved until it is near. */
    static BufferedImage shrink(BufferedImage picture, int side) {
        BufferedImage result = picture;
        int longer = Math.max(result.getWidth(), result.getHeight());
        while (longer > side) {
            int next = Math.max(side, (longer + 1) / 2);
            result = scale(result, (double) next / longer);
            longer = next;
        }
        return result;
    }

    private static BufferedImage scale(BufferedImage picture, double factor) {
        int width = Math.max(1, (int) Math.round(picture.getWidth() * factor));
        int height = Math.max(1, (int) Math.round(picture.getHeight() * factor));
        BufferedImage result = blank(width, height);
        Graphics2D graphics = result.createGraphics();
        graphics.setRenderingHint(RenderingHints.KEY_INTERPOLATION, RenderingHints.VALUE_INTERPOLATION_BILINEAR);
        graphics.drawImage(picture, 0, 0, width, height, null);
        graphics.dispose();
        return result;
    }

    static byte[] encode(BufferedImage picture, String format) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        ImageIO.write(picture, format, bytes);
        return bytes.toByteArray();
    }

    /** An answer with the picture, in the format that the request wants. */
    static JsonObject answer(BufferedImage picture, Arguments arguments) throws IOException {
        String format = arguments.text("format", "jpeg", 4);
        if (!format.equals("jpeg") && !format.equals("png")) {
            throw new IllegalArgumentException("format has to be jpeg or png");
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("width", picture.getWidth());
        answer.addProperty("height", picture.getHeight());
        answer.addProperty("image", Base64.getEncoder().encodeToString(encode(picture, format)));
        return answer;
    }
}
