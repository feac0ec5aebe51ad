// SPDX-License-Identifier: MIT

package measure

import (
	"sync"
	"time"
)

// threadPeriod is the interval at which threads are counted: short enough to see a plateau, and
// long enough not to disturb it.
const threadPeriod = 25 * time.Millisecond

// threadSampler records the largest observed number of OS threads.
type threadSampler struct {
	counter *threadCounter
	quit    chan struct{}
	once    sync.Once
	done    sync.WaitGroup
	most    int
}

func startThreadSampler(counter *threadCounter) *threadSampler {
	s := &threadSampler{counter: counter, quit: make(chan struct{})}
	ticker := time.NewTicker(threadPeriod)
	s.most = s.counter.count()
	s.done.Go(func() {
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				s.most = max(s.most, s.counter.count())
			case <-s.quit:
				s.most = max(s.most, s.counter.count())
				return
			}
		}
	})
	return s
}

// stop ends the sampling and returns the largest count, or 0 if threads cannot be counted. It may
// be called again.
func (s *threadSampler) stop() int {
	s.once.Do(func() {
		close(s.quit)
		s.done.Wait()
	})
	return s.most
}
