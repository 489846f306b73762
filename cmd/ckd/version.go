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
	info := buildinfo.Get()
	if c.JSON {
		return json.NewEncoder(ctx.Stdout).Encode(info)
	}
	_, err := fmt.Fprintf(ctx.Stdout, "ckd %s (revision %s, %s, %s)\n", info.Version, info.Revision, info.GoVersion, info.Platform)
	return err
}
