package daemon

import (
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Of the lines with one message, the log takes the first sampledFirst of each second, and then
// every sampledThen-th, so that a flood of calls does not flood the log.
const sampledFirst, sampledThen = 100, 100

// NewLogger returns a logger that writes lines in a format, json or console, from a level on.
func NewLogger(w io.Writer, level, format string) (*zap.Logger, error) {
	least, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("log level: %w", err)
	}
	fields := zap.NewProductionEncoderConfig()
	fields.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	fields.TimeKey = "time"
	encoder := zapcore.NewJSONEncoder(fields)
	if format == "console" {
		encoder = zapcore.NewConsoleEncoder(fields)
	}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), least)
	// Error lines say what happened and need no stack. Panics carry their own.
	return zap.New(zapcore.NewSamplerWithOptions(core, time.Second, sampledFirst, sampledThen)), nil
}
