// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestPackaging parses the command lines of the systemd unit and the container image.
func TestPackaging(t *testing.T) {
	ringtest.NeedTree(t)
	unit, err := os.ReadFile("../../packaging/ringside-serve.service")
	if err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile("../../packaging/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ExecStart=\S*/ringside (.*)$`).FindSubmatch(unit)
	list := regexp.MustCompile(`(?m)^CMD (\[.*\])$`).FindSubmatch(image)
	if line == nil || list == nil {
		t.Fatal("no command line in the unit or the image")
	}
	var fromImage []string
	if err := json.Unmarshal(list[1], &fromImage); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{strings.Fields(string(line[1])), fromImage} {
		cmd, rest, err := newRootCmd(io.Discard, io.Discard).Find(args)
		if err != nil || cmd.Name() != "serve" {
			t.Fatalf("%q: %v", args, err)
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Errorf("%q: %v", args, err)
		}
		if err := cmd.Args(cmd, cmd.Flags().Args()); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	for _, want := range []string{"DynamicUser=yes", "NoNewPrivileges=yes", "CapabilityBoundingSet=\n", "ProtectSystem=strict", "io_uring_setup io_uring_enter io_uring_register"} {
		if !strings.Contains(string(unit), want) {
			t.Errorf("the unit has no %q", want)
		}
	}
	if !strings.Contains(string(image), "\nUSER 65532:65532\n") {
		t.Error("the image runs as root")
	}
}
