package squeezy.functions;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;

/** Finds the cheapest hotels near a place that have rooms for a stay. */
public final class HotelSearching {
    private static final HotelIndex INDEX = new HotelIndex();
    /** The last pages of offers, which somebody may want to turn back to. */
    private static final Deque<List<Offer>> SESSIONS = new ArrayDeque<>();
    private static final int MOST_SESSIONS = 50;

    private HotelSearching() {}

    public static JsonObject main(JsonObject request) {
        Arguments arguments = new Arguments(request);
        int east = arguments.integer("east", HotelIndex.CITY / 2, 0, HotelIndex.CITY - 1);
        int north = arguments.integer("north", HotelIndex.CITY / 2, 0, HotelIndex.CITY - 1);
        int radius = arguments.integer("radius", 30_000, 0, HotelIndex.CITY);
        int nights = arguments.integer("nights", 3, 1, 30);
        int day = arguments.integer("day", 0, 0, Hotel.DAYS - nights);
        int rooms = arguments.integer("rooms", 1, 1, 50);
        int shown = arguments.integer("shown", 20, 1, 100);

        List<Hotel> hotels = INDEX.within(radius, east, north);
        List<Offer> offers = new ArrayList<>();
        for (Hotel hotel : hotels) {
            if (hasRooms(hotel, day, nights, rooms)) {
                offers.add(new Offer(hotel, price(hotel, day, nights) * rooms, hotel.squaredDistance(east, north)));
            }
        }
        offers.sort(Offer.CHEAPEST_AND_NEAREST);
        List<Offer> page = new ArrayList<>(offers.subList(0, Math.min(shown, offers.size())));
        SESSIONS.addLast(page);
        if (SESSIONS.size() > MOST_SESSIONS) {
            SESSIONS.removeFirst();
        }

        JsonArray list = new JsonArray();
        page.forEach(offer -> list.add(offer.toJson()));
        JsonObject answer = new JsonObject();
        answer.addProperty("summary", offers.size() + " of " + hotels.size() + " hotels have rooms");
        answer.add("offers", list);
        return answer;
    }

    private static boolean hasRooms(Hotel hotel, int day, int nights, int rooms) {
        for (int night = day; night < day + nights; night++) {
            if (hotel.free(night) < rooms) {
                return false;
            }
        }
        return true;
    }

    private static long price(Hotel hotel, int day, int nights) {
        long cents = 0;
        for (int night = day; night < day + nights; night++) {
            cents += hotel.price(night);
        }
        return cents;
    }
}
