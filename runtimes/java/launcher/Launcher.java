package squeezy.server;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Loads an action in Java and answers its calls: Launcher DIRECTORY CLASS.
 *
 * <p>A call is a line of JSON on standard input, its answer one on descriptor 3 (OpenWhisk's actionloop protocol). What
 * the action prints goes to standard output and error, which are its log.
 */
public final class Launcher {
    private static final String ANSWERS = "/proc/self/fd/3";
    private static final String JAR = "action.jar";

    private Launcher() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        // The action does not read its own calls.
        System.setIn(InputStream.nullInputStream());
        PrintStream answers = new PrintStream(new FileOutputStream(ANSWERS), false, StandardCharsets.UTF_8);
        URL jar = new File(arguments[0], JAR).toURI().toURL();
        // Open for as long as the action may load classes from it.
        URLClassLoader loader = new URLClassLoader(new URL[] {jar}, Launcher.class.getClassLoader());
        Thread.currentThread().setContextClassLoader(loader);
        Action action;
        try {
            action = new Action(arguments[1], loader);
        } catch (Refused refused) {
            answer(answers, error(refused.getMessage()));
            loader.close();
            System.exit(1);
            return;
        }
        JsonObject ready = new JsonObject();
        ready.addProperty("ok", true);
        answer(answers, ready);
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            answer(answers, call(action, line));
        }
        loader.close();
        // Threads of the action do not keep it.
        System.exit(0);
    }

    private static JsonObject call(Action action, String line) {
        JsonObject request = JsonParser.parseString(line).getAsJsonObject();
        for (Map.Entry<String, JsonElement> entry : request.entrySet()) {
            // Java cannot change its environment.
            if (entry.getValue().isJsonPrimitive()) {
                System.setProperty("__OW_" + entry.getKey().toUpperCase(), entry.getValue().getAsString());
            }
        }
        try {
            return action.run(request.getAsJsonObject("value"));
        } catch (Refused refused) {
            return error(refused.getMessage());
        }
    }

    private static JsonObject error(String message) {
        JsonObject answer = new JsonObject();
        answer.addProperty("error", message);
        return answer;
    }

    private static void answer(PrintStream answers, JsonObject answer) {
        System.out.flush();
        System.err.flush();
        answers.println(answer);
        answers.flush();
    }
}
