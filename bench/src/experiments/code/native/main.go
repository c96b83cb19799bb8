// Command native is the action of examples/go-hello as a program of the kind native:1, which speaks OpenWhisk's
// actionloop protocol: a line of JSON for each call on standard input, and its answer on descriptor 3.
package main

import (
	"encoding/json"
	"io"
	"log"
	"os"
)

func main() {
	calls := json.NewDecoder(os.Stdin)
	answers := json.NewEncoder(os.NewFile(3, "answers"))
	for {
		var call struct {
			Value map[string]any `json:"value"`
		}
		if err := calls.Decode(&call); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		result, err := action(call.Value)
		if err != nil {
			result = map[string]any{"error": err.Error()}
		}
		if err := answers.Encode(result); err != nil {
			log.Fatal(err)
		}
	}
}
