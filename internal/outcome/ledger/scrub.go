package ledger

import (
	"errors"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

var bucketScrub = []byte("scrub")

// scrub overwrites the free pages of a file, which still hold deleted records. It fills them with
// zeros, until the file has to grow for more, and then frees them again. Pages that somebody reads
// meanwhile are left out.
func scrub(db *bolt.DB) error {
	const piece = 4 << 20 // bytes of a commit: Report waits for one of inbox.db
	size := func() (n int64, err error) {
		return n, db.View(func(tx *bolt.Tx) error { n = tx.Size(); return nil })
	}
	before, err := size()
	zeros := make([]byte, db.Info().PageSize*2/5) // two fill a page
	for after := uint64(0); err == nil; {
		err = db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(bucketScrub)
			if err != nil {
				return err
			}
			b.FillPercent = 1
			for n := 0; n < piece; n += len(zeros) {
				if err := b.Put(uint64Key(after), zeros); err != nil {
					return err
				}
				after++
			}
			return nil
		})
		if err == nil {
			var now int64
			if now, err = size(); now > before {
				break
			}
		}
	}
	return errors.Join(err, db.Update(func(tx *bolt.Tx) error {
		if err := tx.DeleteBucket(bucketScrub); !errors.Is(err, bolterrors.ErrBucketNotFound) {
			return err
		}
		return nil
	}))
}
