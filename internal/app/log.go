package app

import (
	"fmt"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Of the lines with one message, the first so many of a second are written, and
// of the others every so manieth: a flood of calls is no flood of lines.
const sampledFirst, sampledThen = 100, 100

// NewLogger writes lines of a format, json or console, from a level on.
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
	// No stack on error lines: they say what happened, and panics carry their own.
	return zap.New(zapcore.NewSamplerWithOptions(core, time.Second, sampledFirst, sampledThen)), nil
}
