// SPDX-License-Identifier: MIT

package measure

import (
	"sync"
	"time"
)

// threadPeriod is how often threads are counted: often enough to see a plateau, too seldom to
// disturb it.
const threadPeriod = 25 * time.Millisecond

// threadSampler keeps the largest number of OS threads it has seen.
type threadSampler struct {
	counter *threadCounter
	quit    chan struct{}
	once    sync.Once
	done    sync.WaitGroup
	most    int
}

func startThreadSampler() *threadSampler {
	s := &threadSampler{counter: newThreadCounter(), quit: make(chan struct{})}
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

// stop ends the sampling and returns the largest count, 0 where threads cannot be counted. It may
// be called again.
func (s *threadSampler) stop() int {
	s.once.Do(func() {
		close(s.quit)
		s.done.Wait()
		s.counter.close()
	})
	return s.most
}
