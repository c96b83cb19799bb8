package squeezy.functions;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** Texts of words that are drawn from a seed, some words more often than others. */
final class Texts {
    private static final int WORDS_OF_A_TEXT = 300;
    private static final String[] SYLLABLES = {
        "ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "va"
    };

    private Texts() {}

    static List<String> draw(int count, long seed) {
        Random random = new Random(seed);
        List<String> texts = new ArrayList<>(count);
        for (int number = 0; number < count; number++) {
            StringBuilder text = new StringBuilder();
            for (int place = 0; place < WORDS_OF_A_TEXT; place++) {
                // The product of two is small more often than large.
                int word = random.nextInt(64) * random.nextInt(64);
                text.append(SYLLABLES[word >> 8]).append(SYLLABLES[word >> 4 & 15]).append(SYLLABLES[word & 15]);
                text.append(' ');
            }
            texts.add(text.toString());
        }
        return texts;
    }
}
