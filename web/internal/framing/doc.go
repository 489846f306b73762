// Package framing closes connections after HTTP requests whose end a proxy may see elsewhere.
package framing
