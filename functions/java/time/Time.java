package squeezy.functions;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.time.DateTimeException;
import java.time.DayOfWeek;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.TreeSet;

/** What time it is in each of the world's time zones, and when of the next hours most of them are at work. */
public final class Time {
    private static final int MOST_ZONES = 1000;
    /** 9999-12-30: a day later, years of some zones would have five digits. Seconds since 1970. */
    private static final long LATEST = 253_402_128_000L;
    private static final int HOURS = 48;

    private Time() {}

    public static JsonObject main(JsonObject request) {
        Arguments arguments = new Arguments(request);
        Instant at = Instant.ofEpochSecond(arguments.number("at", Instant.now().getEpochSecond(), 0, LATEST));
        List<ZoneId> zones = zones(
                arguments.texts("zones", new ArrayList<>(new TreeSet<>(ZoneId.getAvailableZoneIds())), MOST_ZONES, 64));

        DateTimeFormatter format = DateTimeFormatter.ofPattern("EEEE, uuuu-MM-dd HH:mm:ss xxx", Locale.ENGLISH);
        JsonObject clock = new JsonObject();
        for (ZoneId zone : zones) {
            clock.addProperty(zone.getId(), format.format(at.atZone(zone)));
        }
        List<List<ZonedDateTime>> atWork = atWork(at, zones);
        JsonArray counts = new JsonArray();
        int best = 0;
        for (int hour = 0; hour < HOURS; hour++) {
            counts.add(atWork.get(hour).size());
            if (atWork.get(hour).size() > atWork.get(best).size()) {
                best = hour;
            }
        }
        JsonObject answer = new JsonObject();
        answer.addProperty("summary", "At " + at + " and " + best + " hours most of the zones are at work.");
        answer.add("clock", clock);
        answer.add("at_work", counts);
        answer.addProperty("best_hour", best);
        return answer;
    }

    private static List<ZoneId> zones(List<String> names) {
        List<ZoneId> zones = new ArrayList<>(names.size());
        for (String name : names) {
            try {
                zones.add(ZoneId.of(name));
            } catch (DateTimeException error) {
                throw new IllegalArgumentException("there is no time zone '" + name + "'", error);
            }
        }
        return zones;
    }

    /** For each of the next hours, the local times that are within working hours. */
    private static List<List<ZonedDateTime>> atWork(Instant at, List<ZoneId> zones) {
        List<List<ZonedDateTime>> hours = new ArrayList<>();
        for (int hour = 0; hour < HOURS; hour++) {
            List<ZonedDateTime> open = new ArrayList<>();
            for (ZoneId zone : zones) {
                ZonedDateTime local = at.plusSeconds(hour * 3600L).atZone(zone);
                boolean weekend = local.getDayOfWeek().compareTo(DayOfWeek.SATURDAY) >= 0;
                if (!weekend && local.getHour() >= 9 && local.getHour() < 17) {
                    open.add(local);
                }
            }
            hours.add(open);
        }
        return hours;
    }
}
