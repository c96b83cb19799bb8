package squeezy.functions;

/** A hotel, and how many of its rooms are taken in each night of the year. */
final class Hotel {
    static final int DAYS = 365;

    final int number;
    final String name;
    /** Where it is, in metres from the south-west corner of the city. */
    final int east;
    final int north;
    final int stars;
    /** For a night of a working day. */
    final int cents;
    final int rooms;
    private final byte[] taken = new byte[DAYS];

    Hotel(int number, String name, int east, int north, int stars, int cents, int rooms) {
        this.number = number;
        this.name = name;
        this.east = east;
        this.north = north;
        this.stars = stars;
        this.cents = cents;
        this.rooms = rooms;
        for (int day = 0; day < DAYS; day++) {
            taken[day] = (byte) ((number * 31L + day * 17L + (long) number * day) % (rooms + 1));
        }
    }

    int free(int day) {
        return rooms - taken[day];
    }

    /** A fifth more on the last two days of each week. */
    int price(int day) {
        return day % 7 < 5 ? cents : cents * 6 / 5;
    }

    long squaredDistance(int otherEast, int otherNorth) {
        long eastward = east - otherEast;
        long northward = north - otherNorth;
        return eastward * eastward + northward * northward;
    }
}
