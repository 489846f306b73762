package buildinfo

import (
	"runtime"
	"runtime/debug"
)

// Version is set at link time; without that it is what the module says.
var Version string

// Revision is set at link time; without that it is the working tree's.
var Revision string

// Info is what is known of the build.
type Info struct {
	Version   string `json:"version"`
	Revision  string `json:"revision"`
	GoVersion string `json:"go"`
	Platform  string `json:"platform"`
}

// Get reads the build's own record.
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
