package turns

import (
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// TestTurnsWhileOthersAreRead checks after how many pieces a turn is due, by what other connections do.
func TestTurnsWhileOthersAreRead(t *testing.T) {
	// turns returns in how many of so many pieces a turn is due.
	turns := func(turn *Turn, pieces int) (due int) {
		for range pieces {
			if turn.Due(Piece) {
				due++
			}
		}
		return due
	}
	var n Network
	own, other, shared := n.NewConnection(false), n.NewConnection(false), n.NewConnection(true)
	for _, test := range []struct {
		name string
		of   *Connection
		read []*Connection
		want int // of 2*attention pieces
	}{
		{"alone", own, nil, 2 * attention / calm},
		{"own reads", own, []*Connection{own, own}, 2 * attention / calm},
		{"a read of another", own, []*Connection{other}, attention + attention/calm},
		{"reads of both", own, []*Connection{own, other, own}, attention + attention/calm},
		{"a read of one that others share", own, []*Connection{shared}, attention + attention/calm},
		{"its own read of one that others share", shared, []*Connection{shared}, attention + attention/calm},
		{"no connection", nil, []*Connection{other}, 2 * attention / calm},
	} {
		t.Run(test.name, func(t *testing.T) {
			turn := New(test.of)
			for _, c := range test.read {
				c.Read()
			}
			if got := turns(&turn, 2*attention); got != test.want {
				t.Errorf("%d turns in %d pieces, expected %d", got, 2*attention, test.want)
			}
			if got := turns(&turn, 10*calm); got != 10 {
				t.Errorf("then %d turns in %d pieces, expected 10", got, 10*calm)
			}
		})
	}
}

// TestWorkBetweenTurns checks that no more than a piece, and what was added last, lies between two
// turns while others are read, and ten times that otherwise; and never less than a piece.
func TestWorkBetweenTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var n Network
		turn, other := New(n.NewConnection(false)), n.NewConnection(false)
		since, busy := int64(0), true
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if busy = rapid.Bool().Draw(t, "another is read") && busy; busy {
				other.Read()
			}
			work := rapid.Int64Range(0, 2*Piece).Draw(t, "work")
			since += work
			if turn.Due(work) {
				if since < Piece {
					t.Fatalf("a turn after %d ns", since)
				}
				since = 0
			} else if most := int64(Piece); busy && since >= most || since >= 3*calm*most {
				t.Fatalf("no turn after %d ns, with reads of others: %v", since, busy)
			}
		}
	})
}

// TestYieldReturns checks that yielding ends, from more goroutines at once than can wait, and
// allocates nothing.
func TestYieldReturns(t *testing.T) {
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 200 {
				Yield()
			}
		})
	}
	all.Wait()
	if got := testing.AllocsPerRun(100, Yield); got != 0 {
		t.Errorf("%v allocations a turn", got)
	}
}

// TestYieldLooksAtTheNetwork checks that with all processors busy Yield lets a goroutine go first that
// has something to read, which runtime.Gosched does not, and that it waits no longer because many yield.
func TestYieldLooksAtTheNetwork(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only on Linux")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()

	var pieces atomic.Int64 // of all that yield
	read := make(chan int64)
	go func() {
		for buffer := make([]byte, 1); ; {
			if _, err := server.Read(buffer); err != nil {
				return
			}
			read <- pieces.Load()
		}
	}()
	for _, many := range []int{1, 100} {
		var over atomic.Bool
		var all sync.WaitGroup
		for range many {
			all.Go(func() {
				for !over.Load() {
					pieces.Add(1)
					Yield()
				}
			})
		}
		const messages = 100
		var waited []int64
		for range messages {
			before := pieces.Load()
			if _, err := client.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			waited = append(waited, <-read-before)
		}
		over.Store(true)
		all.Wait()
		slices.Sort(waited)
		if median := waited[messages/2]; median > 10 { // the kernel may take its time
			t.Errorf("%d yield: a message was read after %d pieces (median)", many, median)
		}
	}
}

// BenchmarkYield measures a turn that nobody else takes.
func BenchmarkYield(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Yield()
	}
}
