// Command go-hello is OpenWhisk's action interface over HTTP around one function: POST /init once, then
// POST /run, one at a time. The function is in the program, so /init takes parameters but no code.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
)

const (
	address = "0.0.0.0:9000"
	// OpenWhisk's own limit for arguments, with room for the envelope around them.
	maxRequestBytes = 1<<20 + 64<<10
	// OpenWhisk cuts the logs of activations apart at this line.
	endOfActivation = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX"
)

// refused is a request that is not carried out, with the HTTP status that says so.
type refused struct {
	status int
	text   string
}

func (r refused) Error() string { return r.text }

// server knows whether /init has come.
type server struct {
	// OpenWhisk runs an action once at a time; should anybody else not, requests wait for each other.
	turn  sync.Mutex
	ready bool
}

// read returns the body, and its "value": a JSON object in a JSON object.
func read(r *http.Request) (body, value map[string]any, err error) {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxRequestBytes+1))
	if len(text) > maxRequestBytes {
		// Read to its end and not kept, so that the client hears why.
		_, _ = io.Copy(io.Discard, r.Body)
		return nil, nil, refused{http.StatusRequestEntityTooLarge,
			fmt.Sprintf("The body is larger than %d bytes.", maxRequestBytes)}
	}
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	value, isObject := body["value"].(map[string]any)
	if _, there := body["value"]; err != nil || body == nil || there && !isObject {
		return nil, nil, refused{http.StatusBadRequest,
			`The body has to be a JSON object with an object "value".`}
	}
	return body, value, nil
}

func (s *server) init(r *http.Request) (map[string]any, error) {
	_, value, err := read(r)
	if err != nil {
		return nil, err
	}
	if s.ready {
		return nil, refused{http.StatusForbidden, "Cannot initialize the action more than once."}
	}
	if code, _ := value["code"].(string); code != "" {
		return nil, refused{http.StatusBadRequest, "This image holds its function: /init takes no code."}
	}
	environment, _ := value["env"].(map[string]any)
	for name, setting := range environment {
		if err := os.Setenv(name, text(setting)); err != nil {
			return nil, refused{http.StatusBadRequest, fmt.Sprintf("env: %q: %v", name, err)}
		}
	}
	s.ready = true
	return map[string]any{"ok": true}, nil
}

func (s *server) run(r *http.Request) (map[string]any, error) {
	defer fmt.Fprintln(os.Stderr, endOfActivation)
	defer fmt.Fprintln(os.Stdout, endOfActivation)
	body, value, err := read(r)
	if err != nil {
		return nil, err
	}
	if !s.ready {
		return nil, refused{http.StatusConflict, "POST /init comes before POST /run."}
	}
	for key, setting := range body {
		switch setting.(type) {
		case string, float64, bool:
			os.Setenv("__OW_"+strings.ToUpper(key), text(setting))
		}
	}
	return call(value)
}

// call calls the action; however that ends is its answer, not the server's end.
func call(arguments map[string]any) (result map[string]any, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = refused{http.StatusBadGateway, fmt.Sprintf("The action panicked: %v", panicked)}
		}
	}()
	if result, err = action(arguments); err != nil {
		return nil, refused{http.StatusBadGateway, "The action failed: " + err.Error()}
	}
	return result, nil
}

// text is a setting as a variable of the environment: a string as it is, all else as JSON.
func text(setting any) string {
	if plain, is := setting.(string); is {
		return plain
	}
	encoded, _ := json.Marshal(setting) // It came from JSON.
	return string(encoded)
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.turn.Lock()
	defer s.turn.Unlock()
	status := http.StatusOK
	var answer map[string]any
	var err error = refused{http.StatusNotFound, "There is POST /init and POST /run."}
	switch r.Method + " " + r.URL.Path {
	case "POST /init":
		answer, err = s.init(r)
	case "POST /run":
		answer, err = s.run(r)
	}
	if err != nil {
		status = http.StatusInternalServerError
		var why refused
		if errors.As(err, &why) {
			status = why.status
		}
		answer = map[string]any{"error": err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		log.Printf("answering: %v", err)
	}
}

func main() {
	log.Fatal(http.ListenAndServe(address, &server{}))
}
