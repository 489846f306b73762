package report

import (
	"slices"
	"strings"
)

// command returns a command on the recording, broken into lines where it is long. Where the names of
// classes would fill the screen, it says which flags to give again.
func (e *evaluation) command(name string, more ...string) string {
	const width, most = 94, 400
	words := []string{"ckd " + name}
	length := 0
	for _, flag := range e.given.Recording {
		words = append(words, flag[0]+" "+quote(flag[1]))
		length += len(words[len(words)-1])
	}
	if length > most || len(e.given.Recording) == 0 {
		words = []string{"ckd " + name + " (--passes, --labels, --classes and --critical as here)"}
	}
	for pair := range slices.Chunk(more, 2) {
		words = append(words, strings.Join(pair, " "))
	}
	var lines []string
	line := words[0]
	for _, word := range words[1:] {
		if len(line)+1+len(word) > width {
			lines, line = append(lines, line), "   "
		}
		line += " " + word
	}
	return strings.Join(append(lines, line), " \\\n")
}

// quote returns a word for a shell.
func quote(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=+@%", r)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
