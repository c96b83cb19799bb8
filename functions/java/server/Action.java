package squeezy.server;

import com.google.gson.JsonObject;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;

/** The function: a class with `public static JsonObject main(JsonObject)`, as OpenWhisk's Java actions have it. */
final class Action {
    private final Method main;

    /** Loads the class from there, and with it what the function holds between requests. */
    Action(String className, ClassLoader loader) throws Refused {
        try {
            main = Class.forName(className, true, loader).getMethod("main", JsonObject.class);
        } catch (ReflectiveOperationException | LinkageError error) {
            throw new Refused(502, "The action cannot be loaded: " + error);
        }
        if (!Modifier.isStatic(main.getModifiers()) || main.getReturnType() != JsonObject.class) {
            throw new Refused(502, "The action has no public static JsonObject main(JsonObject).");
        }
    }

    JsonObject run(JsonObject arguments) throws Refused {
        JsonObject result;
        try {
            result = (JsonObject) main.invoke(null, arguments);
        } catch (InvocationTargetException error) {
            // Whatever the function throws, lack of memory too, is its answer, not our end.
            error.getCause().printStackTrace();
            throw new Refused(502, "The action raised " + error.getCause());
        } catch (IllegalAccessException error) {
            throw new Refused(502, "The action's class is not public.");
        }
        if (result == null) {
            throw new Refused(502, "The action did not return an object.");
        }
        return result;
    }
}
