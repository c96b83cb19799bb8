// Command collector is the OpenTelemetry collector with a receiver for OTLP, and an exporter that appends what arrives
// to a file: one line of OTLP's JSON for each request.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

// Config names the file.
type Config struct {
	Path string `mapstructure:"path"`
}

// lines appends to the file; traces and metrics share it.
type lines struct {
	component.StartFunc
	component.ShutdownFunc
	path string
}

var one sync.Mutex

func (l lines) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (l lines) ConsumeTraces(_ context.Context, traces ptrace.Traces) error {
	line, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
	return l.add(line, err)
}

func (l lines) ConsumeMetrics(_ context.Context, metrics pmetric.Metrics) error {
	line, err := (&pmetric.JSONMarshaler{}).MarshalMetrics(metrics)
	return l.add(line, err)
}

func (l lines) add(line []byte, err error) error {
	if err != nil {
		return err
	}
	one.Lock()
	defer one.Unlock()
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(append(line, '\n'))
	return err
}

func toFile() exporter.Factory {
	return exporter.NewFactory(
		component.MustNewType("lines"),
		func() component.Config { return &Config{} },
		exporter.WithTraces(func(_ context.Context, _ exporter.Settings, config component.Config) (exporter.Traces, error) {
			return lines{path: config.(*Config).Path}, nil
		}, component.StabilityLevelStable),
		exporter.WithMetrics(func(_ context.Context, _ exporter.Settings, config component.Config) (exporter.Metrics, error) {
			return lines{path: config.(*Config).Path}, nil
		}, component.StabilityLevelStable),
	)
}

func factories() (otelcol.Factories, error) {
	receivers, err := otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory())
	if err != nil {
		return otelcol.Factories{}, err
	}
	exporters, err := otelcol.MakeFactoryMap[exporter.Factory](toFile())
	return otelcol.Factories{Receivers: receivers, Exporters: exporters, Telemetry: otelconftelemetry.NewFactory()}, err
}

func main() {
	command := otelcol.NewCommand(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "collector", Version: "1"},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()},
			DefaultScheme:     "file",
		}},
	})
	if err := command.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
