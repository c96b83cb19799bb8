package squeezy.functions;

import com.google.gson.JsonObject;
import java.util.Comparator;

/** A hotel with enough free rooms, for all nights of a stay. */
final class Offer {
    static final Comparator<Offer> CHEAPEST_AND_NEAREST = Comparator.comparingLong((Offer offer) -> offer.cents)
            .thenComparingLong(offer -> offer.squaredDistance)
            .thenComparingInt(offer -> offer.hotel.number);

    final Hotel hotel;
    final long cents;
    final long squaredDistance;
    final String text;

    Offer(Hotel hotel, long cents, long squaredDistance) {
        this.hotel = hotel;
        this.cents = cents;
        this.squaredDistance = squaredDistance;
        text = String.format("%s (%d stars), %d m away: %d.%02d", hotel.name, hotel.stars, metres(), cents / 100,
                cents % 100);
    }

    private long metres() {
        return (long) Math.sqrt(squaredDistance);
    }

    JsonObject toJson() {
        JsonObject object = new JsonObject();
        object.addProperty("hotel", hotel.number);
        object.addProperty("cents", cents);
        object.addProperty("metres", metres());
        object.addProperty("text", text);
        return object;
    }
}
