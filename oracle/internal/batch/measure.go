package batch

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"
)

// Milliseconds is a duration as benchmarks print it.
func Milliseconds(d time.Duration) float64 {
	return float64(d) / float64(time.Millisecond)
}

// PeakRSSMiB is the most memory this process has had; 0 where the system does not say.
func PeakRSSMiB() float64 {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), "VmHWM:"); found {
			var kib float64
			if _, err := fmt.Sscanf(strings.TrimSpace(rest), "%g kB", &kib); err == nil {
				return kib / 1024
			}
		}
	}
	return 0
}
