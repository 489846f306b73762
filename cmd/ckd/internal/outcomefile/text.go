package outcomefile

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// foreign names files that are no text by their first bytes, and says what to do.
var foreign = []struct{ begin, what string }{
	{"PK\x03\x04", "an archive or a spreadsheet (.xlsx, .ods), expected text: save a spreadsheet as CSV UTF-8"},
	{"\xd0\xcf\x11\xe0", "a spreadsheet (.xls), expected text: save it as CSV UTF-8"},
	{"\x1f\x8b", "a file packed by gzip, expected text: unpack it first"},
	{"PAR1", "a Parquet file, expected text (pandas: to_csv)"},
}

// toText returns the text of a file in UTF-8, with lines that end in \n. It recognises UTF-16 by its byte
// order mark. It leaves other bytes as they are; lost refuses bytes that are not UTF-8.
func toText(data []byte) ([]byte, error) {
	for _, f := range foreign {
		if bytes.HasPrefix(data, []byte(f.begin)) {
			return nil, errors.New(f.what)
		}
	}
	data, _, err := transform.Bytes(unicode.BOMOverride(transform.Nop), data)
	return bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n")), err
}

// lost returns the position of the first byte of a text that does not stand for its character, and
// why. It returns -1 if there is none. To replace the byte would make one reader of two, such as
// Müller and Möller.
func lost(text string) (at int, why string) {
	for position, r := range text {
		_, size := utf8.DecodeRuneInString(text[position:])
		switch {
		case r == utf8.RuneError && size == 1:
			meant := ""
			if c := charmap.Windows1252.DecodeByte(text[position]); c != utf8.RuneError {
				meant = fmt.Sprintf(" (%q in Windows-1252)", c)
			}
			return position, fmt.Sprintf("byte 0x%02x%s, expected UTF-8: export the file as UTF-8 (Excel: CSV UTF-8), or convert it (iconv -f WINDOWS-1252 -t UTF-8)",
				text[position], meant)
		case r == utf8.RuneError:
			return position, "a replacement character (U+FFFD), expected the one that was lost: export the file again as UTF-8"
		case r == 0:
			return position, "a NUL character, expected text: the file is damaged, or not UTF-8 throughout"
		}
	}
	return -1, ""
}
