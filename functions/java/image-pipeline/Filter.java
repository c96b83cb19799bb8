package squeezy.functions;

import java.awt.image.BufferedImage;

/** What can be done to the pixels of a picture; each makes a new one. */
final class Filter {
    private Filter() {}

    static BufferedImage mirror(BufferedImage picture) {
        int width = picture.getWidth();
        int[] pixels = pixels(picture);
        for (int row = 0; row < pixels.length; row += width) {
            for (int left = row, right = row + width - 1; left < right; left++, right--) {
                int pixel = pixels[left];
                pixels[left] = pixels[right];
                pixels[right] = pixel;
            }
        }
        return picture(pixels, picture);
    }

    static BufferedImage invert(BufferedImage picture) {
        int[] pixels = pixels(picture);
        for (int place = 0; place < pixels.length; place++) {
            pixels[place] = ~pixels[place];
        }
        return picture(pixels, picture);
    }

    /** By the weights of Rec. 601, in thousandths. */
    static BufferedImage grey(BufferedImage picture) {
        int[] pixels = pixels(picture);
        for (int place = 0; place < pixels.length; place++) {
            int pixel = pixels[place];
            int grey = (299 * (pixel >> 16 & 255) + 587 * (pixel >> 8 & 255) + 114 * (pixel & 255) + 500) / 1000;
            pixels[place] = grey << 16 | grey << 8 | grey;
        }
        return picture(pixels, picture);
    }

    /** Each pixel becomes the mean of three, across and then down; what is beyond an edge is as the edge. */
    static BufferedImage blur(BufferedImage picture) {
        int width = picture.getWidth();
        int height = picture.getHeight();
        int[] pixels = pixels(picture);
        int[] across = new int[pixels.length];
        for (int y = 0, place = 0; y < height; y++) {
            for (int x = 0; x < width; x++, place++) {
                across[place] = mean(pixels[x > 0 ? place - 1 : place], pixels[place],
                        pixels[x < width - 1 ? place + 1 : place]);
            }
        }
        int[] down = new int[pixels.length];
        for (int y = 0, place = 0; y < height; y++) {
            for (int x = 0; x < width; x++, place++) {
                down[place] = mean(across[y > 0 ? place - width : place], across[place],
                        across[y < height - 1 ? place + width : place]);
            }
        }
        return picture(down, picture);
    }

    private static int mean(int first, int second, int third) {
        int red = ((first >> 16 & 255) + (second >> 16 & 255) + (third >> 16 & 255)) / 3;
        int green = ((first >> 8 & 255) + (second >> 8 & 255) + (third >> 8 & 255)) / 3;
        int blue = ((first & 255) + (second & 255) + (third & 255)) / 3;
        return red << 16 | green << 8 | blue;
    }

    private static int[] pixels(BufferedImage picture) {
        int width = picture.getWidth();
        return picture.getRGB(0, 0, width, picture.getHeight(), null, 0, width);
    }

    private static BufferedImage picture(int[] pixels, BufferedImage like) {
        BufferedImage result = Picture.blank(like.getWidth(), like.getHeight());
        result.setRGB(0, 0, like.getWidth(), like.getHeight(), pixels, 0, like.getWidth());
        return result;
    }
}
