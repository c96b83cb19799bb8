# What pods of Knative Serving and OpenWhisk need, and OpenWhisk's calls; to be sourced after cri-common.sh. The lowest layer
# has to have awk, chmod, httpd and mkdir.
# shellcheck shell=bash
# shellcheck disable=SC2154 # containerd-common.sh has set it

# import_queue_image: as Knative's own one of queue-proxy is: one program, which is nobody's in particular.
import_queue_image() {
	mkdir -p "$work/queue/ko-app"
	cp "$(command -v queue)" "$work/queue/ko-app/queue"
	name=queue user=65532 entrypoint='["/ko-app/queue"]' make_image "$work/queue"
	import_image docker.io/library/queue:65532
}
# import_action_image: of a shell and the server that all our runtimes have.
import_action_image() {
	mkdir -p "$work/action/bin" "$work/action/tmp"
	cp "$here/../../../build/runtimes/server/squeezy-runtime" "$work/action/bin/squeezy-runtime"
	name=action entrypoint='["squeezy-runtime", "--address", "0.0.0.0", "--file", "exec"]' \
		make_image "$work/layer" "$work/action"
	import_image docker.io/library/action:test
}

# An action: it answers each line of its input with a line on descriptor 3.
cat >"$work/action.sh" <<'SH'
#!/bin/sh
while read -r call; do
	echo "is called"
	bound=$(awk '/CapBnd/ { print $2 }' /proc/self/status)
	echo "{\"host\": \"$__OW_API_HOST\", \"bound\": \"$bound\", \"call\": $call}" >&3
done
SH
# What initializes it.
# shellcheck disable=SC2034 # it is for what is sourced
code=$(python3 -c 'import json, sys; print(json.dumps({"value": {"name": "hello", "main": "main", "binary": False,
	"code": sys.stdin.read(), "env": {"__OW_ACTION_NAME": "/guest/hello"}}}))' <"$work/action.sh")
# call NUMBER: what calls it with that number.
call() {
	echo "{\"action_name\":\"/guest/hello\",\"activation_id\":\"$1\",\"value\":{\"number\":$1}}"
}
# answer NUMBER: to that, from a pod whose capabilities are containerd's without NET_RAW.
answer() {
	echo "200 {\"host\": \"https://openwhisk.test:443\", \"bound\": \"00000000a80405fb\", \"call\": $(call "$1")}"
}
# post ADDRESS PATH BODY: prints the status and the body of its answer.
post() {
	curl --silent --show-error --max-time 60 --output "$work/answer" --write-out '%{http_code} ' \
		-H 'Content-Type: application/json' --data-binary "$3" "http://$1:8080/$2" && cat "$work/answer"
}
# listens ADDRESS: whether somebody does. OpenWhisk waits for nothing but the container's start, and sends a request again
# until then.
listens() {
	[[ $(post "$1" nothing '{}') == "404 "* ]]
}
