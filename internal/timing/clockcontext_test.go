package timing

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestClockContext: a read's context ends with the call's deadline.
func TestClockContext(t *testing.T) {
	past := ClockContext{Context: context.Background(), Until: time.Now().Add(-time.Second)}
	if err := past.Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	if err := (ClockContext{Context: context.Background()}).Err(); err != nil {
		t.Errorf("without a deadline: %v", err)
	}
}
