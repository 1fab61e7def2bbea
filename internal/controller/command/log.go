// Copyright The Ordinal Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strconv"

	"k8s.io/klog/v2"

	"github.com/ordinal-dev/ordinal/api/config/v1alpha1"
	"github.com/ordinal-dev/ordinal/internal/controller/config"
)

// setLog makes this process log in a format, and as much as it is told to.
func setLog(out io.Writer, l v1alpha1.Logging) error {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	if err := flags.Set("v", strconv.Itoa(int(l.Verbosity))); err != nil {
		return fmt.Errorf("set log verbosity: %w", err)
	}
	if l.Format == config.FormatJSON {
		klog.SetSlogLogger(slog.New(jsonHandler(out, l.Verbosity)))
	}
	return nil
}

// jsonHandler writes one JSON object in each line, with the keys that Kubernetes' components use.
func jsonHandler(out io.Writer, verbosity int32) slog.Handler {
	return slog.NewJSONHandler(out, &slog.HandlerOptions{
		AddSource: true,
		// In slog, more is told below 0.
		Level: slog.Level(-verbosity),
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			// Names of objects have a form of their own for logs.
			if o, ok := a.Value.Any().(interface{ MarshalLog() any }); ok {
				a.Value = slog.AnyValue(o.MarshalLog())
			}
			if len(groups) > 0 {
				return a
			}
			return rename(a)
		},
	})
}

// rename names what slog itself adds to an entry.
func rename(a slog.Attr) slog.Attr {
	switch value := a.Value.Any().(type) {
	case *slog.Source:
		if a.Key == slog.SourceKey {
			return slog.String("caller", filepath.Base(value.File)+":"+strconv.Itoa(value.Line))
		}
	case slog.Level:
		switch {
		case a.Key != slog.LevelKey:
		case value > slog.LevelInfo:
			return slog.String(slog.LevelKey, "error")
		default:
			return slog.Group("", slog.String(slog.LevelKey, "info"), slog.Int("v", -int(value)))
		}
	}
	if a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Key = "ts"
	}
	return a
}
