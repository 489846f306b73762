// Package reference keeps the generated parts of the docs current: a test compares a page with what
// the code says, and the same test with the flag -update, which go generate gives it, writes the page.
// Tests alone import it.
package reference
