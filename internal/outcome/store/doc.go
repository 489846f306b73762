// Package store keeps a ledger in one SQLite file: what is stored, never what it means.
package store
