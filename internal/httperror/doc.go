// Package httperror turns errors of calls into HTTP answers: their status and their headers.
package httperror
