// Command client drives a running daemon with OpenWhisk's own client for Go.
// host/squeezy/tests/openwhisk.rs starts both. usage: client URL KEY
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/apache/openwhisk-client-go/whisk"
)

// What the action that is called does.
const code = `
def main(args):
    print('called by', args['who'])
    if 'fail' in args:
        return {'error': 'as told'}
    return {'who': args['who'], 'count': args.get('count', 0) + 1}
`

// How long a call may take: a VM may boot for longer than a call that blocks waits.
const patience = 3 * time.Minute

func main() {
	log.SetFlags(0)
	log.SetPrefix("client: ")
	if len(os.Args) != 3 {
		log.Fatal("usage: client URL KEY")
	}
	url, key := os.Args[1], os.Args[2]
	client := connect(url, key)

	// Its List leaves the client without a namespace.
	namespaces, _, err := connect(url, key).Namespaces.List()
	succeeds("namespaces", err)
	equal("namespaces", namespaces, []whisk.Namespace{{Name: "guest"}})

	actions(client)
	calls(client)
	packages(client)
	sequences(client)
	webActions(client, url)
	refusals(client, url)
	deletions(client)
	fmt.Println("all right")
}

func connect(url, key string) *whisk.Client {
	config := &whisk.Config{Host: url, AuthToken: key}
	client, err := whisk.NewClient(&http.Client{Timeout: patience}, config)
	succeeds("a client", err)
	return client
}

func actions(client *whisk.Client) {
	first := &whisk.Action{
		Name:        "hello",
		Exec:        python(),
		Parameters:  whisk.KeyValueArr{{Key: "who", Value: "first"}},
		Annotations: whisk.KeyValueArr{{Key: "made", Value: "here"}},
		Limits:      &whisk.Limits{Timeout: new(50000), Memory: new(128)},
	}
	made, _, err := client.Actions.Insert(first, false)
	succeeds("create", err)
	equal("kind", made.Exec.Kind, "python:3.11")
	equal("timeout", *made.Limits.Timeout, 50000)
	equal("memory", *made.Limits.Memory, 128)
	equal("annotation", made.Annotations.GetValue("made"), any("here"))
	_, _, err = client.Actions.Insert(first, false)
	fails("create again", err, http.StatusConflict, "resource already exists")

	second := &whisk.Action{Name: "hello", Parameters: whisk.KeyValueArr{{Key: "who", Value: "second"}}}
	updated, _, err := client.Actions.Insert(second, true)
	succeeds("update", err)
	equal("version", updated.Version, "0.0.2")
	equal("timeout after an update", *updated.Limits.Timeout, 50000)
	shown, _, err := client.Actions.Get("hello", true)
	succeeds("get", err)
	equal("code", *shown.Exec.Code, code)
	equal("parameter", shown.Parameters.GetValue("who"), any("second"))
	shown, _, err = client.Actions.Get("hello", false)
	succeeds("get without code", err)
	equal("no code", shown.Exec.Code == nil, true)

	// The daemon serves one from its configuration, too.
	equal("list", actionNames(client, "", &whisk.ActionListOptions{}), []string{"hello", "html"})
	equal("page", actionNames(client, "", &whisk.ActionListOptions{Limit: 1, Skip: 1}), []string{"html"})
}

func calls(client *whisk.Client) {
	activation := called(client, "hello", map[string]any{"count": 1})
	equal("status", activation.Status, "success")
	equal("result", *activation.Result, whisk.Result(map[string]any{"who": "second", "count": json.Number("2")}))
	says("log", activation.Logs, "stdout: called by second")
	logs, _, err := client.Activations.Logs(activation.ActivationID)
	succeeds("logs", err)
	equal("logs", logs.Logs, activation.Logs)
	response, _, err := client.Activations.Result(activation.ActivationID)
	succeeds("result", err)
	equal("result apart", *response.Result, *activation.Result)

	result, _, err := client.Actions.Invoke("hello", map[string]any{"count": 5}, true, true)
	succeeds("result only", err)
	equal("result only", field(result, "count"), any(json.Number("6")))
	accepted, answer, err := client.Actions.Invoke("hello", map[string]any{"count": 6}, false, false)
	succeeds("without waiting", err)
	equal("without waiting", answer.StatusCode, http.StatusAccepted)
	later := ended(client, accepted)
	equal("result later", field(*later.Result, "count"), any(json.Number("7")))

	failed, _, err := client.Actions.Invoke("hello", map[string]any{"fail": true}, true, false)
	fails("a call that fails", err, http.StatusBadGateway, "as told")
	var whiskError *whisk.WskError
	errors.As(err, &whiskError)
	equal("an application error", whiskError.ApplicationError, true)
	equal("status of a failure", ended(client, failed).Status, "application error")

	listed, _, err := client.Activations.List(&whisk.ActivationListOptions{Name: "hello", Limit: 10})
	succeeds("activations", err)
	var codes []int
	for _, activation := range listed {
		codes = append(codes, activation.StatusCode)
	}
	equal("activations, the latest first", codes, []int{1, 0, 0, 0})
	count, _, err := client.Activations.Count(&whisk.ActivationCountOptions{Name: "hello"})
	succeeds("count", err)
	equal("count", count.Activations, 4)
}

func packages(client *whisk.Client) {
	tools := &whisk.Package{Name: "tools", Parameters: whisk.KeyValueArr{{Key: "who", Value: "tools"}}}
	_, _, err := client.Packages.Insert(tools, false)
	succeeds("package", err)
	binding := &whisk.BindingPackage{
		Name:       "mine",
		Binding:    whisk.Binding{Namespace: "_", Name: "tools"},
		Parameters: whisk.KeyValueArr{{Key: "count", Value: 10}},
	}
	_, _, err = client.Packages.Insert(binding, false)
	succeeds("binding", err)
	_, _, err = client.Actions.Insert(&whisk.Action{Name: "tools/hello", Exec: python()}, false)
	succeeds("action in a package", err)
	equal("actions of a package", actionNames(client, "tools", &whisk.ActionListOptions{}), []string{"hello"})
	listed, _, err := client.Packages.List(&whisk.PackageListOptions{})
	succeeds("packages", err)
	var names []string
	for _, one := range listed {
		names = append(names, one.Name)
	}
	equal("packages", names, []string{"mine", "tools"})
	shown, _, err := client.Packages.Get("mine")
	succeeds("get a binding", err)
	equal("bound to", *shown.Binding, whisk.Binding{Namespace: "guest", Name: "tools"})
	equal("actions of a binding", shown.Actions[0].Name, "hello")
	activation := called(client, "mine/hello", map[string]any{})
	equal("parameters", *activation.Result, whisk.Result(map[string]any{"who": "tools", "count": json.Number("11")}))
	_, err = client.Packages.Delete("tools")
	fails("delete a package that is not empty", err, http.StatusConflict, "not empty")
}

func sequences(client *whisk.Client) {
	exec := &whisk.Exec{Kind: "sequence", Components: []string{"/_/hello", "/_/tools/hello"}}
	_, _, err := client.Actions.Insert(&whisk.Action{Name: "both", Exec: exec}, false)
	succeeds("sequence", err)
	whole := called(client, "both", map[string]any{"count": 1})
	// The second one gets the first one's result, over what its package has for it.
	equal("result of a sequence", *whole.Result, whisk.Result(map[string]any{"who": "second", "count": json.Number("3")}))
	equal("components", len(whole.Logs), 2)
	for _, id := range whole.Logs {
		part, _, err := client.Activations.Get(id)
		succeeds("component", err)
		equal("cause", part.Cause, whole.ActivationID)
	}
}

func webActions(client *whisk.Client, url string) {
	annotations := whisk.KeyValueArr{{Key: "web-export", Value: true}}
	exported, _, err := client.Actions.Insert(&whisk.Action{Name: "hello", Annotations: annotations}, true)
	succeeds("export", err)
	address, err := exported.ActionURL(url, "/api", "v1", "")
	succeeds("address", err)
	equal("address", address, url+"/api/v1/web/guest/default/hello")
	// No client of OpenWhisk's: a stranger's request.
	answer, err := http.Get(address + ".json")
	succeeds("web action", err)
	defer answer.Body.Close()
	equal("web action", answer.StatusCode, http.StatusOK)
	var result map[string]any
	succeeds("web action", json.NewDecoder(answer.Body).Decode(&result))
	equal("web action", result, map[string]any{"who": "second", "count": 1.0})
}

func refusals(client *whisk.Client, url string) {
	stranger := connect(url, "nobody:0123456789abcdef")
	_, _, err := stranger.Actions.List("", &whisk.ActionListOptions{})
	fails("a wrong key", err, http.StatusUnauthorized, "The supplied authentication is invalid")
	_, _, err = client.Actions.Get("none", false)
	fails("no action", err, http.StatusNotFound, "The requested resource does not exist.")
	_, _, err = client.Actions.Insert(&whisk.Action{Name: "bad", Exec: &whisk.Exec{Kind: "php:8", Code: new("x")}}, false)
	fails("no such kind", err, http.StatusBadRequest, "the kinds here are blackbox, python:3.11")
	limits := &whisk.Limits{Memory: new(1)}
	_, _, err = client.Actions.Insert(&whisk.Action{Name: "hello", Limits: limits}, true)
	fails("too little memory", err, http.StatusBadRequest, "limits.memory must be from 32")
}

func deletions(client *whisk.Client) {
	for _, name := range []string{"both", "tools/hello", "hello"} {
		_, err := client.Actions.Delete(name)
		succeeds("delete "+name, err)
		_, _, err = client.Actions.Get(name, false)
		fails("get "+name, err, http.StatusNotFound, "does not exist")
	}
	for _, name := range []string{"mine", "tools"} {
		_, err := client.Packages.Delete(name)
		succeeds("delete "+name, err)
	}
	equal("what is left", actionNames(client, "", &whisk.ActionListOptions{}), []string{"html"})
}

func python() *whisk.Exec {
	return &whisk.Exec{Kind: "python:3", Code: new(code)}
}

func actionNames(client *whisk.Client, inPackage string, options *whisk.ActionListOptions) []string {
	listed, _, err := client.Actions.List(inPackage, options)
	succeeds("list", err)
	var names []string
	for _, action := range listed {
		names = append(names, action.Name)
	}
	return names
}

// called returns the activation of a call that blocks, or of one that has taken too long for that.
func called(client *whisk.Client, name string, arguments map[string]any) *whisk.Activation {
	answer, _, err := client.Actions.Invoke(name, arguments, true, false)
	var whiskError *whisk.WskError
	if !errors.As(err, &whiskError) || !whiskError.TimedOut {
		succeeds("call "+name, err)
	}
	return ended(client, answer)
}

// ended waits for the end of the call that an answer names.
func ended(client *whisk.Client, answer any) *whisk.Activation {
	id, isText := field(answer, "activationId").(string)
	equal("an activation's ID", isText, true)
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		activation, _, err := client.Activations.Get(id)
		if err == nil || time.Now().After(end) {
			succeeds("activation "+id, err)
			return activation
		}
	}
}

// field is a value of a JSON object.
func field(object any, name string) any {
	fields, isObject := object.(map[string]any)
	equal("an object with "+name, isObject, true)
	return fields[name]
}

func succeeds(what string, err error) {
	if err != nil {
		log.Fatalf("%s: %v", what, err)
	}
}

// fails checks that the client's own error has the status of the answer, and what it says.
func fails(what string, err error, status int, part string) {
	var whiskError *whisk.WskError
	if !errors.As(err, &whiskError) {
		log.Fatalf("%s: it should have failed with an error of the client: %v", what, err)
	}
	equal(what+": exit status", whiskError.ExitCode, status-256)
	if !strings.Contains(whiskError.Error(), part) {
		log.Fatalf("%s: %v, not %q", what, whiskError, part)
	}
}

func says(what string, lines []string, end string) {
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasSuffix(line, end) }) {
		log.Fatalf("%s: %q has no line that ends with %q", what, lines, end)
	}
}

// equal compares two values with all that is in them.
func equal[T any](what string, got, want T) {
	if !reflect.DeepEqual(got, want) {
		log.Fatalf("%s: %v, not %v", what, got, want)
	}
}
