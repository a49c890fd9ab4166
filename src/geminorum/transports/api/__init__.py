"""The Gemini API, through Google's SDK."""
