package squeezy.functions;

import java.awt.Color;
import java.awt.GradientPaint;
import java.awt.Graphics2D;
import java.awt.image.BufferedImage;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Random;

/** What a request without a picture is about: balloons over a sky, drawn once and kept as a JPEG. */
final class Photograph {
    static final int WIDTH = 1600;
    static final int HEIGHT = 1200;
    private static final int BALLOONS = 300;

    static final byte[] JPEG = draw();

    private Photograph() {}

    private static byte[] draw() {
        BufferedImage picture = Picture.blank(WIDTH, HEIGHT);
        Graphics2D graphics = picture.createGraphics();
        graphics.setPaint(new GradientPaint(0, 0, new Color(40, 90, 200), 0, HEIGHT, new Color(250, 200, 150)));
        graphics.fillRect(0, 0, WIDTH, HEIGHT);
        Random random = new Random(1);
        for (int number = 0; number < BALLOONS; number++) {
            graphics.setPaint(new Color(random.nextInt(1 << 24)));
            int size = 10 + random.nextInt(70);
            graphics.fillOval(random.nextInt(WIDTH), random.nextInt(HEIGHT), size, size);
        }
        graphics.dispose();
        try {
            return Picture.encode(picture, "jpeg");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
