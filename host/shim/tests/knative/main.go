// Prints the Deployment that Knative Serving makes for a Service: that of its standard input, with the ConfigMaps there
// and Knative's defaults for the others. It is made by the code of Knative's own controllers.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"knative.dev/pkg/configmap"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	configurations "knative.dev/serving/pkg/reconciler/configuration/resources"
	"knative.dev/serving/pkg/reconciler/revision/config"
	revisions "knative.dev/serving/pkg/reconciler/revision/resources"
	services "knative.dev/serving/pkg/reconciler/service/resources"
	objects "sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "knative:", err)
		os.Exit(1)
	}
}

func run(from io.Reader, to io.Writer) error {
	// What the controller's own Deployment has.
	for name, value := range map[string]string{
		"SYSTEM_NAMESPACE": "knative-serving",
		"METRICS_DOMAIN":   "knative.dev/internal/serving",
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	service, settings, err := read(from)
	if err != nil {
		return err
	}
	store := config.NewStore(zap.NewNop().Sugar())
	store.WatchConfigs(configmap.NewStaticWatcher(settings...))
	ctx := store.ToContext(context.Background())

	service.SetDefaults(ctx)
	// The number of a first revision is that of the first generation of its configuration.
	configuration := services.MakeConfiguration(service)
	configuration.Generation = 1
	configuration.SetDefaults(ctx)
	revision := configurations.MakeRevision(ctx, configuration, time.Now())
	revision.SetDefaults(ctx)
	deployment, err := revisions.MakeDeployment(revision, store.Load())
	if err != nil {
		return err
	}
	deployment.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}
	// The cluster has no revisions that could own it.
	deployment.OwnerReferences = nil
	return json.NewEncoder(to).Encode(deployment)
}

// read returns the Service and all the ConfigMaps that Knative's controllers read; those that are missing are empty.
func read(from io.Reader) (*servingv1.Service, []*corev1.ConfigMap, error) {
	var service *servingv1.Service
	settings := map[string]*corev1.ConfigMap{}
	for _, name := range []string{"autoscaler", "defaults", "deployment", "features", "logging", "network",
		"observability", "tracing"} {
		settings["config-"+name] = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config-" + name}}
	}
	documents := yaml.NewYAMLReader(bufio.NewReader(from))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		var kind metav1.TypeMeta
		if err := objects.Unmarshal(document, &kind); err != nil {
			return nil, nil, err
		}
		switch kind.Kind {
		case "Service":
			service = &servingv1.Service{}
			if err := objects.UnmarshalStrict(document, service); err != nil {
				return nil, nil, err
			}
		case "ConfigMap":
			one := &corev1.ConfigMap{}
			if err := objects.UnmarshalStrict(document, one); err != nil {
				return nil, nil, err
			}
			if _, known := settings[one.Name]; !known {
				return nil, nil, fmt.Errorf("Knative's controllers have no ConfigMap %s", one.Name)
			}
			settings[one.Name] = one
		}
	}
	if service == nil {
		return nil, nil, errors.New("there is no Service")
	}
	return service, slices.Collect(maps.Values(settings)), nil
}
