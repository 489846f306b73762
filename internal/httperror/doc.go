// Package httperror says errors in HTTP: which status an error is answered with, and what its headers say.
package httperror
