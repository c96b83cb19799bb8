package squeezy.functions;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** All hotels of the city, by where they are. */
final class HotelIndex {
    static final int HOTELS = 20_000;
    /** The city is a square. Metres. */
    static final int CITY = 100_000;
    private static final int CELL = 1000;
    private static final int CELLS = CITY / CELL;

    private final List<List<Hotel>> cells = new ArrayList<>(CELLS * CELLS);

    HotelIndex() {
        for (int cell = 0; cell < CELLS * CELLS; cell++) {
            cells.add(new ArrayList<>(4));
        }
        Random random = new Random(2024);
        for (int number = 0; number < HOTELS; number++) {
            int east = random.nextInt(CITY);
            int north = random.nextInt(CITY);
            int stars = 1 + random.nextInt(5);
            int cents = stars * 3000 + random.nextInt(10_000);
            int rooms = 1 + random.nextInt(50);
            cell(east / CELL, north / CELL)
                    .add(new Hotel(number, "Hotel " + number, east, north, stars, cents, rooms));
        }
    }

    private List<Hotel> cell(int column, int row) {
        return cells.get(row * CELLS + column);
    }

    /** The hotels that are no further away than this, in metres. */
    List<Hotel> within(int radius, int east, int north) {
        List<Hotel> found = new ArrayList<>();
        for (int row = cellOf(north - radius); row <= cellOf(north + radius); row++) {
            for (int column = cellOf(east - radius); column <= cellOf(east + radius); column++) {
                for (Hotel hotel : cell(column, row)) {
                    if (hotel.squaredDistance(east, north) <= (long) radius * radius) {
                        found.add(hotel);
                    }
                }
            }
        }
        return found;
    }

    private static int cellOf(int metres) {
        return Math.max(0, Math.min(CELLS - 1, metres / CELL));
    }
}
