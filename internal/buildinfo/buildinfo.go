package buildinfo

import (
	"runtime"
	"runtime/debug"
)

// Version is set at link time. If it is empty, Get uses the version of the module.
var Version string

// Revision is set at link time. If it is empty, Get uses the revision of the working tree.
var Revision string

// Info describes the build.
type Info struct {
	Version   string `json:"version"`
	Revision  string `json:"revision"`
	GoVersion string `json:"go"`
	Platform  string `json:"platform"`
}

// Get returns what the linker and the Go toolchain recorded about the build.
func Get() Info {
	info := Info{
		Version:   Version,
		Revision:  Revision,
		GoVersion: runtime.Version(),
		Platform:  runtime.GOOS + "/" + runtime.GOARCH,
	}
	build, ok := debug.ReadBuildInfo()
	if ok {
		if info.Version == "" {
			info.Version = build.Main.Version
		}
		for _, s := range build.Settings {
			if s.Key == "vcs.revision" && info.Revision == "" {
				info.Revision = s.Value
			}
		}
	}
	if info.Version == "" {
		info.Version = "(devel)"
	}
	if info.Revision == "" {
		info.Revision = "unknown"
	}
	return info
}
