package document

import (
	"bytes"
	"embed"
	"html/template"
	"io"
)

// Sheet is a page to print on two sides of A4 and to sign.
type Sheet struct {
	Title    string
	Warnings []string
	Lead     string // begins with the sentence that is signed
	Ask      string // what has to be said first; "" for nothing
	Table    *Table // nil for none
	Sections []Section
	// Blanks are to be filled in by those who sign; none where there is nothing to sign.
	Blanks []string
	Foot   string
}

//go:embed sheet.html.tmpl sheet.css
var sheetFiles embed.FS

var sheetTemplate = template.Must(template.Must(pageTemplate.Clone()).ParseFS(sheetFiles, "sheet.html.tmpl"))

// WriteSheet writes a sheet as one HTML page. It writes nothing if it fails before the page is
// complete.
func WriteSheet(w io.Writer, s *Sheet) error {
	base, err := files.ReadFile("style.css")
	if err != nil {
		return err
	}
	own, err := sheetFiles.ReadFile("sheet.css")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	page := struct {
		*Sheet
		Style template.CSS
	}{s, template.CSS(string(base) + string(own))}
	if err := sheetTemplate.ExecuteTemplate(&out, "sheet.html.tmpl", page); err != nil {
		return err
	}
	_, err = w.Write(out.Bytes())
	return err
}
