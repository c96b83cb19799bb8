package main

import (
	"errors"
	"runtime"
)

// action is the function itself.
func action(arguments map[string]any) (map[string]any, error) {
	name := "stranger"
	if given, there := arguments["name"]; there {
		var isText bool
		if name, isText = given.(string); !isText {
			return nil, errors.New("name has to be a string")
		}
	}
	return map[string]any{"greeting": "Hello, " + name + "!", "go": runtime.Version()}, nil
}
