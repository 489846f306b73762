package turns

import (
	"net"
	"runtime"
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
			if turn.Due(piece) {
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
			work := rapid.Int64Range(0, 2*piece).Draw(t, "work")
			since += work
			if turn.Due(work) {
				if since < piece {
					t.Fatalf("a turn after %d ns", since)
				}
				since = 0
			} else if most := int64(piece); busy && since >= most || since >= 3*calm*most {
				t.Fatalf("no turn after %d ns, with reads of others: %v", since, busy)
			}
		}
	})
}

// TestSlots checks that no more work goes on after its first turn than there are processors, that all of
// it comes to its end, and that the slots are there for the next.
func TestSlots(t *testing.T) {
	const works = 50
	for range 3 {
		var all sync.WaitGroup
		var running, most atomic.Int64
		for range works {
			all.Go(func() {
				var turn Turn
				defer turn.End()
				for piece := range 20 {
					if piece > 0 {
						running.Add(-1)
					}
					turn.Give()
					now := running.Add(1)
					for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
					}
					runtime.Gosched()
				}
				running.Add(-1)
			})
		}
		all.Wait()
		if got, processors := most.Load(), int64(runtime.GOMAXPROCS(0)); got > processors {
			t.Errorf("%d went on at a time with %d processors", got, processors)
		}
	}
	var turn Turn
	turn.End()
	turn.Give()
	turn.End()
	turn.End()
	if got, want := len(slots), int(made.Load()); got != want {
		t.Errorf("%d slots are free, expected all %d", got, want)
	}
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
// has something to read, which runtime.Gosched does not.
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

	const messages = 100
	read := make(chan struct{}, messages)
	go func() {
		for buffer := make([]byte, 1); ; {
			if _, err := server.Read(buffer); err != nil {
				return
			}
			read <- struct{}{}
		}
	}()
	first := 0 // messages that were read in the first turn after they came
	for range messages {
		if _, err := client.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		for turns := 1; ; turns++ {
			Yield()
			if len(read) > 0 {
				<-read
				if turns == 1 {
					first++
				}
				break
			}
		}
	}
	if first < messages/2 { // the kernel may take its time
		t.Errorf("%d of %d messages were read in the first turn after they came", first, messages)
	}
}

// BenchmarkYield measures a turn that nobody else takes.
func BenchmarkYield(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Yield()
	}
}
