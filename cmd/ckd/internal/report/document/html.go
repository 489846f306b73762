package document

import (
	"bytes"
	"embed"
	"html/template"
	"io"
)

//go:embed page.html.tmpl style.css
var files embed.FS

var pageTemplate = template.Must(template.New("page.html.tmpl").Funcs(template.FuncMap{
	"figure":   asFigure,
	"table":    asTable,
	"cells":    (*Table).cells,
	"pictures": picture,
}).ParseFS(files, "page.html.tmpl"))

// HTML writes a document as one HTML page. It writes nothing if it fails before the page is
// complete.
func HTML(w io.Writer, d *Document) error {
	style, err := files.ReadFile("style.css")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	page := struct {
		*Document
		Style template.CSS
	}{d, template.CSS(style)}
	if err := pageTemplate.Execute(&out, page); err != nil {
		return err
	}
	_, err = w.Write(out.Bytes())
	return err
}

func asFigure(p Part) *Figure { f, _ := p.(*Figure); return f }
func asTable(p Part) *Table   { t, _ := p.(*Table); return t }

// TextColumn reports whether column i holds text.
func (t *Table) TextColumn(i int) bool { return i < t.TextColumns }

// Class returns the CSS classes of the mark.
func (k Key) Class() string { return string(k.Mark) + " " + k.Ink.String() }
