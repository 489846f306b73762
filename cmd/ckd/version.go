package main

import (
	"encoding/json"
	"fmt"

	"github.com/ckd-project/ckd/internal/buildinfo"
)

type versionCmd struct {
	JSON bool `help:"As JSON."`
}

// Run prints the build.
func (c *versionCmd) Run(ctx *cmdContext) error {
	if c.JSON {
		return json.NewEncoder(ctx.Stdout).Encode(buildinfo.Get())
	}
	_, err := fmt.Fprintln(ctx.Stdout, versionLine())
	return err
}

// versionLine returns the build in one line.
func versionLine() string {
	info := buildinfo.Get()
	return fmt.Sprintf("ckd %s (revision %s, %s, %s)", info.Version, info.Revision, info.GoVersion, info.Platform)
}
