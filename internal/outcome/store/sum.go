package store

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A table names a table in the checksums of its rows, so that no row passes for one of another
// table.
type table byte

// The tables, by the numbers in their checksums.
const (
	tableIdentity table = 1 + iota
	tableMeta
	tablePolicy
	tablePromise
	tableDecision
	tableCohort
	tableCount
	tableTaken
	tableIssued
	tableIssuedSum
	tableSettings
	tableApplied
	tableSealer
	tableEvidence
	tableTrail
)

// sum returns the checksum (CRC-32C) of a row: of its table and its columns in their order, each
// with its length.
func (t table) sum(columns ...any) int64 {
	b := append(make([]byte, 0, 256), byte(t))
	for _, c := range columns {
		switch c := c.(type) {
		case int64:
			b = binary.BigEndian.AppendUint64(b, uint64(c))
		case uint64:
			b = binary.BigEndian.AppendUint64(b, c)
		case bool:
			b = append(b, 0)
			if c {
				b[len(b)-1] = 1
			}
		case string:
			b = append(binary.AppendUvarint(b, uint64(len(c))), c...)
		case []byte:
			b = append(binary.AppendUvarint(b, uint64(len(c))), c...)
		default:
			panic("store: a column of a type without checksum")
		}
	}
	return int64(crc32.Checksum(b, castagnoli))
}
