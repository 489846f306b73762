package integration_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// cgroupKind is a version of memory cgroups, as a kernel mounts it.
type cgroupKind struct {
	name, root   string
	memory, swap string // files of a group's limits
	swapBeside   bool   // whether the limit of swap counts swap alone, and not memory too
}

var cgroups = []cgroupKind{
	{"v1", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", false},
	{"v2", "/sys/fs/cgroup", "memory.max", "memory.swap.max", true},
	{"v2 beside v1", "/sys/fs/cgroup/unified", "memory.max", "memory.swap.max", true},
}

// make makes a cgroup whose processes have so much memory and no swap. The cgroup ends with the test.
func (k cgroupKind) make(t *testing.T, limit int64) (string, error) {
	t.Helper()
	if k.swapBeside {
		// Fails where the memory controller is another version's, and has no effect where it is on.
		if err := overwrite(filepath.Join(k.root, "cgroup.subtree_control"), "+memory"); err != nil {
			return "", err
		}
	}
	group, err := os.MkdirTemp(k.root, "ckd-test-")
	if err != nil {
		return "", err
	}
	t.Cleanup(func() { eventually(t, "the cgroup is empty", func() bool { return os.Remove(group) == nil }) })
	if err := overwrite(filepath.Join(group, k.memory), fmt.Sprint(limit)); err != nil {
		return "", err
	}
	swap := limit
	if k.swapBeside {
		swap = 0
	}
	_ = overwrite(filepath.Join(group, k.swap), fmt.Sprint(swap)) // a kernel without swap has no such file
	return group, nil
}

// overwrite writes to a file of the kernel's, and makes none: a folder that is no cgroup has no such file.
func overwrite(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// enter has a command's process start in a cgroup.
func enter(command *exec.Cmd, group string) {
	command.Args = append([]string{"sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(group, "cgroup.procs")}, command.Args...)
	command.Path, command.Err = exec.LookPath("sh")
}
